/* Draws from alias tables: what _Alias.draw of core/randomness.py does, in one pass and to the
   last bit. */

#include <stdint.h>

/* uniform [n] in [0, 1), rows [n]; keep and other [laws * outcomes]; drawn [n].
   Returns 0, or 1 if a row is not one of the laws. */
long draw_alias(long n, long laws, long outcomes, const double *uniform, const int64_t *rows,
                const double *keep, const int64_t *other, int64_t *drawn) {
    for (long i = 0; i < n; i++) {
        if ((uint64_t)rows[i] >= (uint64_t)laws) return 1;
        double scaled = uniform[i] * (double)outcomes;
        int64_t column = (int64_t)scaled, entry = rows[i] * outcomes + column;
        int64_t kept = -(int64_t)(scaled - (double)column < keep[entry]);
        drawn[i] = (column & kept) | (other[entry] & ~kept);
    }
    return 0;
}
