"""`triptych generate`: a file of prompts, a model and a rule in; a file of guided texts out.

prompts        what is asked for, read and checked
servers        a model behind a URL, and which one it is
settings       what decides the texts, and its fingerprint
rules          the verifier by its name on the command line
rule_process   a rule of the user's own in a process that can be stopped
completing     a chunk of prompts to rows: what a worker does
engines        chunks over this process, worker processes or Ray actors
rows           the file of rows: appended, mended, and never a finished prompt twice
progress       what a person sees
run            all of it together
"""
