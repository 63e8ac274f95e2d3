"""What a person looks at: pages, figures, tables of runs."""
