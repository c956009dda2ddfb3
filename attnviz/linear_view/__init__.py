"""The linear page's view: settings, the two maps and the state, recall, random features and cost."""
