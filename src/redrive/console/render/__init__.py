"""How pages are rendered: templates, fragments, states, navigation, errors."""
