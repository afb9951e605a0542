"""The review of a change: verdict, figures, comment and page."""
