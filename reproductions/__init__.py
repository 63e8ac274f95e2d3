"""Reproductions: a paper's cells, and the page that shows them beside the paper's own numbers."""
