"""What the pages share: controls, links, words and the components that draw."""
