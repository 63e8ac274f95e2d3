"""What agents learn in the examples: runs, their records, and the tables that READMEs have of them.

    python -m examples.study run word_game prices       compute what has no record, or all of it
    python -m examples.study nodes word_game            some rounds across two nodes of Flower
    python -m examples.study write                      tables and pictures from records, in seconds

In a checkout, from its root.
"""
