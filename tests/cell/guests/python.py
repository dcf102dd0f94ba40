import collections, dataclasses, datetime, decimal, functools, hashlib, itertools, json, re, sys, textwrap

@dataclasses.dataclass(order=True)
class Part:
    price: decimal.Decimal
    name: str

parts = [Part(decimal.Decimal(p) / 7, n) for p, n in [(3, "nut"), (1, "bolt"), (12, "gear"), (5, "ä")]]
print(json.dumps({p.name: str(p.price) for p in sorted(parts)}, ensure_ascii=False, indent=1))
words = re.findall(r"\w+", "the cat and the hat and the bat".upper())
print(collections.Counter(words).most_common(2), sys.argv[1:])
print(functools.reduce(lambda a, b: a * b, range(1, 30)), 0.1 + 0.2, 1e22, -7 // 2, pow(3, -1, 11))
print(hashlib.sha256(b"carrel").hexdigest(), int.from_bytes(b"\x01\x02", "little"))
print(datetime.date(2024, 2, 28) + datetime.timedelta(days=2), f"{1234567.891:,.2f}|{'x':^5}|{255:#010b}")
print(list(itertools.islice(itertools.permutations("abc"), 4)), {*"a"} | {*"a"})
print(textwrap.fill("one two three four five six seven", 12))
try:
    [].pop()
except IndexError as e:
    print(type(e).__name__, e, sys.stdin.readline().strip(), sep="; ")
sys.exit(3)
