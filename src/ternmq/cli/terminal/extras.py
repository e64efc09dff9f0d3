"""Which extra brings a module that is not installed."""

BROUGHT_BY = {
    "pyspark": "spark",
    "py4j": "spark",
    "pyarrow": "spark",
    "pandas": "spark",
    "duckdb": "spark",
    "deltalake": "delta",
    "sqlalchemy": "outbox",
    "lz4": "lz4",
    "typer": "server",
    "rich": "server",
    "structlog": "server",
    "prometheus_client": "server",
    "kazoo": "zookeeper",
    "psycopg": "postgres",
    "asyncpg": "postgres",
    "pymysql": "mysql",
    "asyncmy": "mysql",
    "aiosqlite": "sqlite",
    "cryptography": "security",
    "fastapi": "console",
    "starlette": "console",
    "uvicorn": "console",
    "jinja2": "console",
    "multipart": "console",
    "google": "rocketmq",
}


def what_to_install(module: str | None) -> str | None:
    """One line for people; None for a module that no extra brings: that is a bug of ours."""
    extra = BROUGHT_BY.get((module or "").partition(".")[0])
    if extra is None:
        return None
    return f"this needs {module}, which is not installed: pip install 'ternmq[{extra}]'"
