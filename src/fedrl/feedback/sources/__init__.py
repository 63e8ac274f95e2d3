"""Who answers a client's queries: a simulated person, a log of answers, or a living person."""
