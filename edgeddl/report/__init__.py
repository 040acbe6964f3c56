"""Runs, looked at afterwards or while they go on: a page of plots and the numbers beneath."""
