"""Plans of actions, shown before they are applied."""
