class Part {
  constructor(name, price) { this.name = name; this.price = price; }
  get label() { return `${this.name}=${this.price.toFixed(3)}`; }
}
const parts = [["nut", 3], ["bolt", 1], ["gear", 12], ["ä", 5]].map(([n, p]) => new Part(n, p / 7));
console.log(parts.sort((a, b) => a.price - b.price).map(p => p.label).join(","));
console.log(JSON.stringify(Object.fromEntries(parts.map(p => [p.name, p.price])), null, 1));
const count = new Map();
for (const word of "the cat and the hat and the bat".match(/\w+/g)) count.set(word, (count.get(word) ?? 0) + 1);
console.log(JSON.stringify([...count].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))));
let product = 1n;
for (let i = 1n; i < 30n; i++) product *= i;
console.log(String(product), String(0.1 + 0.2), String(1e22), String(-7 % 3), String((255).toString(2)));
function* fib() { let [a, b] = [0, 1]; for (;;) { yield a; [a, b] = [b, a + b]; } }
const some = [];
for (const n of fib()) { if (some.push(n) > 9) break; }
console.log(some.join(" "), [..."héllo"].reverse().join(""), "a-b".padStart(6, "*"));
console.log(new Date(Date.UTC(2024, 1, 30)).toISOString(), String([1, [2, [3]]].flat(Infinity)));
try { null.x; } catch (e) { console.log(e instanceof TypeError, e.name); }
console.log("2024-05-06".replace(/(?<y>\d+)-(?<m>\d+)-(?<d>\d+)/, "$<d>.$<m>.$<y>"), typeof Symbol.iterator);
Promise.resolve(42).then(n => console.log("later", String(n)));
console.log(String(new Uint8Array([1, 256, 257])), String(Math.max(...some)), "last");
