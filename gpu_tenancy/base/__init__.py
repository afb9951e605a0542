"""What all rooms use: errors, JSON values, quantities, texts and tables for people."""
