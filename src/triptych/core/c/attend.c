/* Attention of single queries over a cache of keys and values: what scaled_dot_product_attention
   does, without a mask and without a copy of the rows.

   P_j = softmax over j <= slot of scale * (q . k_j),  out = sum over j of P_j v_j

   Every row of the cache is read once from its beginning to the slot of its query, all heads of a
   slot together, as they lie in memory: reading is what such a step spends its time on.
   core/compiled.py builds this with the system's own C compiler; it needs the vector types of gcc
   and clang. */

#include <math.h>
#include <stdint.h>

typedef float vec __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t bits __attribute__((vector_size(32), aligned(4), may_alias));

enum { LANES = 8, SLOTS = 4 }; /* numbers in a vector; slots that are added at once */

#define ALWAYS static inline __attribute__((always_inline))

ALWAYS vec load(const float *from) { return *(const vec *)from; }
ALWAYS void store(float *to, vec value) { *(vec *)to = value; }
ALWAYS vec spread(float x) { return (vec){x, x, x, x, x, x, x, x}; }
ALWAYS float sum_of(vec x) {
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

/* exp x for x <= 0, within two units of the last place (the polynomial of Cephes); at most
   exp(-87) where x is less. */
ALWAYS vec exp_of(vec x) {
    bits low = x < -87.0f;
    x = (vec)((low & (bits)spread(-87.0f)) | (~low & (bits)x));
    vec shifted = x * 1.44269504088896341f + 12582912.0f; /* rounds to a whole number */
    vec n = shifted - 12582912.0f;
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = spread(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (vec)(((bits)shifted + 127) << 23); /* 2^n: n stands in the last bits of shifted */
}

/* Softmax of n scores in place; the row has room for whole vectors, and ends with zeros. */
ALWAYS void softmax(float *scores, long n) {
    float most = -INFINITY, total = 0.0f;
    for (long j = 0; j < n; j++) most = scores[j] > most ? scores[j] : most;
    long padded = (n + LANES - 1) / LANES * LANES;
    for (long j = n; j < padded; j++) scores[j] = most;
    for (long j = 0; j < padded; j += LANES) store(scores + j, exp_of(load(scores + j) - most));
    for (long j = n; j < padded; j++) scores[j] = 0.0f;
    vec sums = spread(0.0f);
    for (long j = 0; j < padded; j += LANES) sums += load(scores + j);
    total = sum_of(sums);
    for (long j = 0; j < padded; j += LANES) store(scores + j, load(scores + j) / total);
}

/* One query of all heads over the first n slots of a row of the cache. */
ALWAYS void attend(long n, long heads, long width, long room, float scale, const float *query,
                   const float *keys, const float *values, float *work, float *out) {
    long entry = heads * width;
    for (long j = 0; j < n; j++)
        for (long h = 0; h < heads; h++) {
            const float *q = query + h * width, *k = keys + j * entry + h * width;
            vec sum = load(q) * load(k);
            for (long i = LANES; i < width; i += LANES) sum += load(q + i) * load(k + i);
            work[h * room + j] = scale * sum_of(sum);
        }
    for (long h = 0; h < heads; h++) softmax(work + h * room, n);
    for (long i = 0; i < entry; i += LANES) store(out + i, spread(0.0f));
    for (long j = 0; j < n; j += SLOTS)
        for (long h = 0; h < heads; h++) {
            const float *weight = work + h * room + j;
            const float *v = values + j * entry + h * width;
            long last = n - j < SLOTS ? n - j : SLOTS;
            for (long i = 0; i < width; i += LANES) {
                vec sum = load(out + h * width + i);
                if (last == SLOTS) {
                    for (long s = 0; s < SLOTS; s++) sum += weight[s] * load(v + s * entry + i);
                } else {
                    for (long s = 0; s < last; s++) sum += weight[s] * load(v + s * entry + i);
                }
                store(out + h * width + i, sum);
            }
        }
}

/* Numbers in `work` that attend_rows needs. */
long attend_work(long heads, long length) { return heads * ((length + LANES - 1) / LANES * LANES); }

/* query and out [rows, t, heads, width]; keys and values [batch, length, heads, width], `width` a
   multiple of 8; row [rows] of the cache; slot [rows, t]: the last that a query sees. */
void attend_rows(long rows, long t, long heads, long width, long length, double scale,
                 const float *query, const float *keys, const float *values, const int64_t *row,
                 const int64_t *slot, float *work, float *out) {
    long entry = heads * width, room = attend_work(1, length);
    for (long r = 0; r < rows; r++)
        for (long i = 0; i < t; i++) {
            const float *q = query + (r * t + i) * entry;
            const float *k = keys + row[r] * length * entry, *v = values + row[r] * length * entry;
            float *o = out + (r * t + i) * entry;
            long n = slot[r * t + i] + 1;
            switch (width) { /* the same code with a width that the compiler knows */
            case 16: attend(n, heads, 16, room, (float)scale, q, k, v, work, o); break;
            case 32: attend(n, heads, 32, room, (float)scale, q, k, v, work, o); break;
            case 64: attend(n, heads, 64, room, (float)scale, q, k, v, work, o); break;
            default: attend(n, heads, width, room, (float)scale, q, k, v, work, o);
            }
        }
}
