"""What `triptych new` writes: a working structure, algorithm and study, each in one file.

In the new file its own name stands in place of `my_structure`, `my_algorithm` or `my_study`, and a
class name made from it in place of `MyStructure`.
"""
