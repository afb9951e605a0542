"""What all pages share: templates, style sheet, tables, bars and the Content Security Policy."""
