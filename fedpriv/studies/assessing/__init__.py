"""Assessments: which defence stops which attack, from the plan to the page that is handed in."""
