"""Review of a stack's change: verdict, changed resources, guarantees and costs, as text, Markdown, HTML and JSON."""
