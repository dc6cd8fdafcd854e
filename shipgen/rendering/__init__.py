"""Templates to text: the strict Jinja2 environment, one quoting filter a grammar, parse-back, the bundle."""
