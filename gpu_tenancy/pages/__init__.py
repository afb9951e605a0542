"""Shared by all pages: templates, style sheet, tables, bars and the Content Security Policy."""
