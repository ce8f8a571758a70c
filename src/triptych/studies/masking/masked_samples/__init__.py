"""The steps of the finite-sample bound, by enumeration [li, 4.3.3.1 and 4.3.4]."""
