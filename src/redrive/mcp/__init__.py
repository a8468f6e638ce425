"""The MCP server: what operators do, as tools for an agent. Extra: `mcp`."""
