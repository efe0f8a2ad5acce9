"""Rule files of the domain `bench`."""

# Never reached by a run, and with a period so long that no key expires.
MANY = "unit: day, requests_per_unit: 4000000000"


def document(*descriptors):
    return "domain: bench\ndescriptors:\n" + "".join(descriptors)


def rule(key="user", value=None, limit=MANY):
    which = f"  - key: {key}\n" + (f"    value: {value}\n" if value else "")
    return which + f"    rate_limit: {{ {limit} }}\n"


def one(limit=MANY):
    """One rule with one limit."""
    return document(rule(limit=limit))


def several():
    """Three rules with four limits each."""
    units = ("hour", "day", "week", "year")
    limits = "".join(f"      - {{ unit: {unit}, requests_per_unit: 4000000000 }}\n" for unit in units)
    return document(*(f"  - key: {key}\n    rate_limits:\n{limits}" for key in ("user", "path", "ip")))


def by_value(count, limit=MANY):
    """One rule per user: u0000 to u9999 for ten thousand."""
    width = len(str(count - 1))
    return document(*(rule(value=f"u{i:0{width}}", limit=limit) for i in range(count)))
