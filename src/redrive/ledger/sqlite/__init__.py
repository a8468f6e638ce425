"""The statements of SQLite. All run inside one BEGIN IMMEDIATE … COMMIT of whoever calls them."""
