/* Products of a few rows with a matrix that was packed before: out = x W^T + bias.

   A decoder multiplies a few dozen rows with every matrix of a network, one matrix after the other.
   A general product would rearrange each matrix every time, and wait for it to come from memory.
   Here a matrix is rearranged once, into panels of a few columns of W^T; and while one panel is
   multiplied the next one is fetched. core/compiled.py builds this with the system's own C compiler;
   it needs the vector types of gcc and clang. */

#include <string.h>

#if defined(__AVX512F__)
enum { LANES = 16 }; /* numbers in a vector */
#else
enum { LANES = 8 };
#endif
enum { ROWS = 6, VECTORS = 2, PANEL = VECTORS * LANES }; /* rows and columns multiplied at once */

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define ALWAYS static inline __attribute__((always_inline))
#define ALL _Pragma("GCC unroll 6") for

ALWAYS vec load(const float *from) { return *(const vec *)from; }
ALWAYS void store(float *to, vec value) { *(vec *)to = value; }

/* `rows` rows of x, a number that the compiler knows, times one panel [k, PANEL], plus a start;
   `fetched` rows of what comes next are asked for on the way. */
ALWAYS void panel_product(int rows, long k, const float *x, const float *panel, const float *start,
                          const float *next, long fetched, float *out, long step) {
    vec sums[ROWS][VECTORS];
    ALL (int r = 0; r < rows; r++)
        ALL (int c = 0; c < VECTORS; c++) sums[r][c] = load(start + c * LANES);
    for (long i = 0; i < k; i++) {
        vec right[VECTORS];
        ALL (int c = 0; c < VECTORS; c++) right[c] = load(panel + i * PANEL + c * LANES);
        if (i < fetched)
            ALL (int c = 0; c < PANEL; c += 16) __builtin_prefetch(next + i * PANEL + c);
        ALL (int r = 0; r < rows; r++)
            ALL (int c = 0; c < VECTORS; c++) sums[r][c] += x[r * k + i] * right[c];
    }
    ALL (int r = 0; r < rows; r++)
        ALL (int c = 0; c < VECTORS; c++) store(out + r * step + c * LANES, sums[r][c]);
}

/* Numbers in the panels of a matrix [columns, k]. */
long packed_numbers(long columns, long k) { return (columns + PANEL - 1) / PANEL * PANEL * k; }

/* A matrix W [columns, k] as panels [k, PANEL] of W^T, the last one filled up with zeros. */
void pack_matrix(long columns, long k, const float *matrix, float *panels) {
    for (long first = 0; first < columns; first += PANEL)
        for (long i = 0; i < k; i++)
            for (long j = first; j < first + PANEL; j++)
                *panels++ = j < columns ? matrix[j * k + i] : 0.0f;
}

/* x [m, k], panels of W [columns, k], bias [columns] or null, out [m, columns]. */
void packed_product(long m, long k, long columns, const float *x, const float *panels,
                    const float *bias, float *out) {
    long blocks = m / ROWS > 0 ? m / ROWS : 1, share = (k + blocks - 1) / blocks;
    float start[PANEL], part[ROWS * PANEL];
    for (long first = 0; first < columns; first += PANEL, panels += k * PANEL) {
        long width = columns - first < PANEL ? columns - first : PANEL;
        memset(start, 0, sizeof start);
        if (bias) memcpy(start, bias + first, width * sizeof(float));
        for (long r = 0, begun = 0, rows; r < m; r += rows, begun += share) {
            const float *left = x + r * k, *next = panels + (k + begun) * PANEL;
            long there = first + PANEL < columns && begun < k;
            long fetched = !there ? 0 : k - begun < share ? k - begun : share;
            float *to = width == PANEL ? out + r * columns + first : part;
            long step = width == PANEL ? columns : PANEL;
            rows = m - r >= ROWS ? ROWS : m - r >= 4 ? 4 : m - r >= 2 ? 2 : 1;
#define PRODUCT(N) panel_product(N, k, left, panels, start, next, fetched, to, step)
            if (rows == ROWS) PRODUCT(ROWS);
            else if (rows == 4) PRODUCT(4);
            else if (rows == 2) PRODUCT(2);
            else PRODUCT(1);
            for (long i = 0; i < rows && width < PANEL; i++)
                memcpy(out + (r + i) * columns + first, part + i * PANEL, width * sizeof(float));
        }
    }
}
