"""What `triptych new` writes: a working structure, algorithm, verifier and study, each in one file.

In the new file its own name stands for `my_structure`, `my_algorithm`, `my_verifier` or `my_study`,
and a class name made from it for `MyStructure`.
"""
