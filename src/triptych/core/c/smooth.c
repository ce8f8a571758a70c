/* Posteriors of a chain's hidden states: what fast_messages.py does, a few rows at a time.

   joint_t = before_t * e_t,  before_{t+1} = joint_t A,  after_{t-1} = A (e_t * after_t)

   A block of rows goes through all positions while its messages stay in the processor's cache.
   Rows of states are padded with zeros to whole vectors of four numbers. core/compiled.py builds
   this with the system's own C compiler; it needs the vector types of gcc and clang. */

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef double vec __attribute__((vector_size(32), aligned(8), may_alias));
typedef int64_t bits __attribute__((vector_size(32), aligned(8), may_alias));

enum { LANES = 4, GROUP = 4 }; /* numbers in a vector; rows that a product handles at once */

static inline vec load(const double *from) { return *(const vec *)from; }
static inline void store(double *to, vec value) { *(vec *)to = value; }
static inline vec spread(double x) { return (vec){x, x, x, x}; }

/* log x for x >= 0, within one unit of the last place (the polynomial of fdlibm's e_log.c).
   Zero and numbers below 2.3e-308 give -inf. */
static inline vec log_of(vec x) {
    const int64_t one = 0x3ff0000000000000, low = 0x3fe6a09e667f3bcd; /* 1 and sqrt(1/2) */
    bits shifted = (bits)x + (one - low);
    vec power = (vec)((bits)((shifted >> 52) & 0x7ff) | 0x4330000000000000) - (0x1p52 + 1023.0);
    vec f = (vec)((shifted & 0x000fffffffffffff) + low) - 1.0; /* x = 2^power (1 + f) */
    vec s = f / (f + 2.0), z = s * s, w = z * z;
    vec odd = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 +
              w * 1.531383769920937332e-01));
    vec even = z * (6.666666666666735130e-01 + w * (2.857142874366239149e-01 +
               w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    vec half = 0.5 * f * f;
    vec found = power * 6.93147180369123816490e-01 -
                ((half - (s * (half + odd + even) + power * 1.90821492927058770002e-10)) - f);
    bits tiny = x < 0x1p-1022;
    return (vec)((tiny & (bits)spread(-INFINITY)) | (~tiny & (bits)found));
}

/* Holds a value in a register: gcc would read it from memory again for every row, and reading
   would take longer than multiplying. */
#if defined(__AVX__)
#define KEEP(value) __asm__("" : "+x"(value))
#else
#define KEEP(value)
#endif

/* GROUP rows of left times `width` columns of a packed matrix: k numbers in each row of left. */
#define ALL _Pragma("GCC unroll 4") for
#define PRODUCT(NAME, VECTORS)                                                                   \
    static inline void NAME(long k, const double *left, long left_step, const double *panel,     \
                            double *to, long to_step) {                                          \
        vec sums[GROUP][VECTORS];                                                                \
        ALL (int r = 0; r < GROUP; r++)                                                          \
            ALL (int c = 0; c < VECTORS; c++) sums[r][c] = spread(0.0);                          \
        for (long i = 0; i < k; i++) {                                                           \
            vec right[VECTORS];                                                                  \
            ALL (int c = 0; c < VECTORS; c++) {                                                  \
                right[c] = load(panel + (i * VECTORS + c) * LANES);                              \
                KEEP(right[c]);                                                                  \
            }                                                                                    \
            ALL (int r = 0; r < GROUP; r++) {                                                    \
                vec x = spread(left[r * left_step + i]);                                         \
                ALL (int c = 0; c < VECTORS; c++) sums[r][c] += x * right[c];                    \
            }                                                                                    \
        }                                                                                        \
        ALL (int r = 0; r < GROUP; r++)                                                          \
            ALL (int c = 0; c < VECTORS; c++) store(to + r * to_step + c * LANES, sums[r][c]);   \
    }
PRODUCT(product_1, 1)
PRODUCT(product_2, 2)
PRODUCT(product_3, 3)

/* Adds the product of left^T and right to GROUP rows and `width` columns of a matrix: both have
   `count` rows of `step` numbers. */
#define OUTER(NAME, VECTORS)                                                                     \
    static inline void NAME(long count, const double *left, const double *right, double *to,     \
                            long step) {                                                         \
        vec sums[GROUP][VECTORS];                                                                \
        ALL (int g = 0; g < GROUP; g++)                                                          \
            ALL (int c = 0; c < VECTORS; c++) sums[g][c] = load(to + g * step + c * LANES);      \
        for (long r = 0; r < count; r++) {                                                       \
            vec other[VECTORS];                                                                  \
            ALL (int c = 0; c < VECTORS; c++) {                                                  \
                other[c] = load(right + r * step + c * LANES);                                   \
                KEEP(other[c]);                                                                  \
            }                                                                                    \
            ALL (int g = 0; g < GROUP; g++) {                                                    \
                vec x = spread(left[r * step + g]);                                              \
                ALL (int c = 0; c < VECTORS; c++) sums[g][c] += x * other[c];                    \
            }                                                                                    \
        }                                                                                        \
        ALL (int g = 0; g < GROUP; g++)                                                          \
            ALL (int c = 0; c < VECTORS; c++) store(to + g * step + c * LANES, sums[g][c]);      \
    }
OUTER(outer_1, 1)
OUTER(outer_2, 2)
OUTER(outer_3, 3)

/* Vectors in the next panel of a matrix that has `left` vectors of columns to go: three if that
   leaves no single one, because a panel of one vector keeps the processor half idle. */
static inline long panel_vectors(long left) { return left == 4 ? 2 : left < 3 ? left : 3; }

/* A matrix [k, columns] as panels of columns, each row by row; `padded` columns, a multiple of 4. */
static void pack(long k, long columns, long padded, const double *matrix, double *panels) {
    for (long first = 0; first < padded;) {
        long width = LANES * panel_vectors((padded - first) / LANES);
        for (long i = 0; i < k; i++)
            for (long j = first; j < first + width; j++)
                *panels++ = j < columns ? matrix[i * columns + j] : 0.0;
        first += width;
    }
}

static void multiply(long rows, long k, const double *left, long left_step, const double *panels,
                     double *to, long padded) {
    for (long first = 0; first < padded;) {
        long vectors = panel_vectors((padded - first) / LANES);
        for (long r = 0; r < rows; r += GROUP) {
            const double *a = left + r * left_step;
            double *b = to + r * padded + first;
            if (vectors == 3) product_3(k, a, left_step, panels, b, padded);
            else if (vectors == 2) product_2(k, a, left_step, panels, b, padded);
            else product_1(k, a, left_step, panels, b, padded);
        }
        panels += k * vectors * LANES;
        first += vectors * LANES;
    }
}

/* to += left^T right, all of them with rows of `step` numbers. */
static void add_outer(long count, const double *left, const double *right, double *to, long step) {
    for (long first = 0; first < step;) {
        long vectors = panel_vectors((step - first) / LANES);
        for (long i = 0; i < step; i += GROUP) {
            double *here = to + i * step + first;
            if (vectors == 3) outer_3(count, left + i, right + first, here, step);
            else if (vectors == 2) outer_2(count, left + i, right + first, here, step);
            else outer_1(count, left + i, right + first, here, step);
        }
        first += vectors * LANES;
    }
}

static inline double sum_of(const double *row, long padded) {
    vec sum = spread(0.0);
    for (long j = 0; j < padded; j += LANES) sum += load(row + j);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static inline long up(long n, long step) { return (n + step - 1) / step * step; }

/* A block of chains: where its messages are, and the model that all blocks share. */
typedef struct {
    long length, states, padded, block, every;
    double floor;
    const double *forward, *evidence, *start;
    double *joint, *message, *scales;
} chains;

/* joint_t of `count` rows, and the total that is divided out at the end. */
static void pass_forward(const chains *c, long count, const int64_t *symbol, double *log_evidence,
                         uint8_t *at_risk) {
    long length = c->length, padded = c->padded, block = c->block, full = up(count, GROUP);
    double *message = c->message, *scales = c->scales;
    for (long r = 0; r < full; r++) memcpy(message + r * padded, c->start, padded * sizeof(double));
    for (long r = 0; r < count; r++) log_evidence[r] = 0.0, at_risk[r] = 0;

    for (long t = 0; t < length; t++) {
        double *here = c->joint + t * block * padded;
        int rescaled = t < length - 1 && (t + 1) % c->every == 0;
        for (long r = 0; r < full; r++) { /* rows beyond `count` repeat the last one */
            long real = r < count ? r : count - 1;
            const double *e = c->evidence + symbol[real * length + t] * padded;
            double *row = here + r * padded;
            for (long j = 0; j < padded; j += LANES)
                store(row + j, load(message + r * padded + j) * load(e + j));
            if (!rescaled) continue;
            double total = sum_of(row, padded), scale = total == 0.0 ? 1.0 : total;
            bits risk = {0, 0, 0, 0};
            for (long j = 0; j < padded; j += LANES) {
                vec value = load(row + j) / scale;
                store(row + j, value);
                risk |= (bits)(value > 0.0) & (bits)(value < c->floor);
            }
            scales[t * block + r] = scale;
            if (r >= count) continue;
            if (risk[0] | risk[1] | risk[2] | risk[3]) at_risk[r] = 1;
            log_evidence[r] += log(total);
        }
        if (t < length - 1) multiply(full, c->states, here, padded, c->forward, message, padded);
    }

    for (long r = 0; r < full; r++) { /* the total is divided out here, so that posteriors sum to 1 */
        double total = sum_of(c->joint + ((length - 1) * block + r) * padded, padded);
        vec value = spread(total == 0.0 ? 0.0 : 1.0 / total);
        for (long j = 0; j < padded; j += LANES) store(message + r * padded + j, value);
        if (r < count) log_evidence[r] += log(total);
    }
}

/* Numbers in `work` that smooth_rows needs. */
long smooth_work(long block, long length, long states, long symbols, long outcomes) {
    long padded = up(states, LANES), wide = up(outcomes, LANES);
    return 2 * states * padded + states * wide + symbols * padded + padded +
           block * ((length + 2) * padded + wide) + length * block;
}

/* initial [states], transition [states, states] and its transpose, table [symbols, states],
   tokens [rows, length], readout [states, outcomes] or null.

   out [length, rows, outcomes]: log-posteriors. log_evidence [rows]. at_risk [rows]: 1 where a
   supported entry came below `floor`. `every`: steps between rescalings. `block`: rows at once, a
   multiple of 4. */
void smooth_rows(long rows, long length, long states, long symbols, long outcomes,
                 const double *initial, const double *transition, const double *transposed,
                 const double *table, const int64_t *tokens, const double *readout, long every,
                 double floor, long block, double *out, double *log_evidence, uint8_t *at_risk,
                 double *work) {
    long padded = up(states, LANES), wide = up(outcomes, LANES);
    double *forward = work, *backward = forward + states * padded;
    double *reader = backward + states * padded, *evidence = reader + states * wide;
    double *start = evidence + symbols * padded, *joint = start + padded;
    double *message = joint + block * length * padded, *ahead = message + block * padded;
    double *read = ahead + block * padded, *scales = read + block * wide;

    pack(states, states, padded, transition, forward);
    pack(states, states, padded, transposed, backward);
    if (readout) pack(states, outcomes, wide, readout, reader);
    for (long x = 0; x < symbols; x++)
        for (long j = 0; j < padded; j++)
            evidence[x * padded + j] = j < states ? table[x * states + j] : 0.0;
    for (long j = 0; j < padded; j++) start[j] = j < states ? initial[j] : 0.0;

    chains c = {length, states, padded, block, every, floor, forward, evidence, start, joint, message,
                scales};
    for (long first = 0; first < rows; first += block) {
        long count = rows - first < block ? rows - first : block, full = up(count, GROUP);
        const int64_t *symbol = tokens + first * length;
        pass_forward(&c, count, symbol, log_evidence + first, at_risk + first);

        for (long t = length - 1; t >= 0; t--) {
            double *here = joint + t * block * padded;
            int rescaled = t < length - 1 && (t + 1) % every == 0;
            for (long r = 0; r < full; r++) {
                long real = r < count ? r : count - 1;
                const double *e = evidence + symbol[real * length + t] * padded;
                double *row = here + r * padded;
                for (long j = 0; j < padded; j += LANES) {
                    vec value = load(row + j), after = load(message + r * padded + j);
                    after = (vec)((bits)after & (bits)(value > 0.0)); /* excluded: may be infinite */
                    store(row + j, value * after);
                    store(ahead + r * padded + j, load(e + j) * after);
                }
            }
            const double *law = here;
            if (readout) {
                multiply(full, states, here, padded, reader, read, wide);
                law = read;
            }
            for (long r = 0; r < count; r++) {
                double *to = out + (t * rows + first + r) * outcomes;
                long j = 0;
                for (; j + LANES <= outcomes; j += LANES)
                    store(to + j, log_of(load(law + r * wide + j)));
                if (j < outcomes) {
                    vec last = log_of(load(law + r * wide + j));
                    for (long i = j; i < outcomes; i++) to[i] = last[i - j];
                }
            }
            if (t > 0) multiply(full, states, ahead, padded, backward, message, padded);
            if (t > 0 && rescaled)
                for (long r = 0; r < full; r++)
                    for (long j = 0; j < padded; j += LANES)
                        store(message + r * padded + j,
                              load(message + r * padded + j) / scales[t * block + r]);
        }
    }
}

/* Numbers in `work` that count_rows needs. */
long count_work(long block, long length, long states, long symbols) {
    long padded = up(states, LANES);
    return 3 * states * padded + padded * padded + 2 * symbols * padded + padded +
           block * ((length + 2) * padded) + length * block;
}

/* Expected counts, added up over rows with their weights: how often state i is the first
   (first_counts), state j follows i (pairs), and state i emits symbol x (emitted).

   As smooth_rows, but the last symbol of the table means that the row is over: what stands there
   is not counted. A row at risk is not counted either. */
void count_rows(long rows, long length, long states, long symbols, const double *initial,
                const double *transition, const double *transposed, const double *table,
                const int64_t *tokens, const double *weights, long every, double floor, long block,
                double *first_counts, double *pairs, double *emitted, double *log_evidence,
                uint8_t *at_risk, double *work) {
    long padded = up(states, LANES), past = symbols - 1;
    double *forward = work, *backward = forward + states * padded;
    double *sums = backward + states * padded, *evidence = sums + padded * padded;
    double *counts = evidence + symbols * padded, *start = counts + symbols * padded;
    double *joint = start + padded, *message = joint + block * length * padded;
    double *ahead = message + block * padded, *scales = ahead + block * padded;

    pack(states, states, padded, transition, forward);
    pack(states, states, padded, transposed, backward);
    for (long x = 0; x < symbols; x++)
        for (long j = 0; j < padded; j++)
            evidence[x * padded + j] = j < states ? table[x * states + j] : 0.0;
    for (long j = 0; j < padded; j++) start[j] = j < states ? initial[j] : 0.0;
    memset(sums, 0, padded * padded * sizeof(double));
    memset(counts, 0, symbols * padded * sizeof(double));
    memset(first_counts, 0, states * sizeof(double));

    chains c = {length, states, padded, block, every, floor, forward, evidence, start, joint, message,
                scales};
    for (long first = 0; first < rows; first += block) {
        long count = rows - first < block ? rows - first : block, full = up(count, GROUP);
        const int64_t *symbol = tokens + first * length;
        pass_forward(&c, count, symbol, log_evidence + first, at_risk + first);
        for (long r = 0; r < count; r++)
            if (at_risk[first + r]) memset(message + r * padded, 0, padded * sizeof(double));

        for (long t = length - 1; t >= 0; t--) {
            const double *here = joint + t * block * padded;
            int rescaled = t < length - 1 && (t + 1) % every == 0;
            int even = full == count; /* every row counts once at this position */
            for (long r = 0; r < full; r++) {
                long real = r < count ? r : count - 1, x = symbol[real * length + t];
                const double *e = evidence + x * padded, *row = here + r * padded;
                double *to = counts + x * padded;
                double inverse = rescaled ? 1.0 / scales[t * block + r] : 1.0;
                double weight = r < count && !at_risk[first + r] ? weights[first + r] : 0.0;
                even &= weight == 1.0 && x != past;
                for (long j = 0; j < padded; j += LANES) {
                    vec value = load(row + j), after = load(message + r * padded + j);
                    after = (vec)((bits)after & (bits)(value > 0.0)); /* excluded: may be infinite */
                    store(to + j, load(to + j) + value * after * weight);
                    store(ahead + r * padded + j, load(e + j) * after * inverse);
                }
                for (long i = 0; t == 0 && i < states; i++)
                    first_counts[i] += row[i] > 0.0 ? row[i] * message[r * padded + i] * weight : 0.0;
            }
            if (t == 0) continue;
            multiply(full, states, ahead, padded, backward, message, padded);
            for (long r = 0; r < full && !even; r++) { /* from here on the rows are weighted */
                int counted = r < count && !at_risk[first + r] && symbol[r * length + t] != past;
                double weight = counted ? weights[first + r] : 0.0;
                for (long j = 0; j < padded; j += LANES) {
                    vec value = load(ahead + r * padded + j) * weight;
                    store(ahead + r * padded + j, weight == 0.0 ? spread(0.0) : value);
                }
            }
            add_outer(full, here - block * padded, ahead, sums, padded);
        }
    }
    for (long i = 0; i < states; i++)
        for (long j = 0; j < states; j++)
            pairs[i * states + j] = sums[i * padded + j] * transition[i * states + j];
    for (long x = 0; x < past; x++)
        for (long j = 0; j < states; j++) emitted[x * states + j] = counts[x * padded + j];
}
