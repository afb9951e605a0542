"""Shared by all rooms: errors, JSON values, quantities, texts and tables for people."""
