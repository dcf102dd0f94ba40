<?php
$parts = ["nut" => 3, "bolt" => 1, "gear" => 12, "ä" => 5];
asort($parts);
echo json_encode($parts, JSON_UNESCAPED_UNICODE | JSON_PRETTY_PRINT), "\n";
preg_match_all('/\w+/', "the cat and the hat and the bat", $found);
$count = array_count_values($found[0]);
arsort($count);
print_r(array_slice($count, 0, 2));
echo array_product(range(1, 15)), " ", 0.1 + 0.2, " ", 1e22, " ", intdiv(-7, 2), " ", -7 % 3, "\n";
echo hash("sha256", "carrel"), " ", bin2hex(pack("v", 258)), "\n";
printf("%010.3f|%-5s|%b|%+d\n", 1234.5678, "x", 255, 7);
function fib() { [$a, $b] = [0, 1]; while (true) { yield $a; [$a, $b] = [$b, $a + $b]; } }
foreach (fib() as $i => $n) { if ($i > 9) break; echo $n, " "; }
echo "\n", implode(",", array_map(fn($x) => $x ** 2, array_filter(range(1, 9), fn($x) => $x % 2))), "\n";
echo (new DateTimeImmutable("2024-02-28"))->modify("+2 days")->format("Y-m-d l"), "\n";
try { intdiv(1, 0); } catch (DivisionByZeroError $e) { echo get_class($e), ": ", $e->getMessage(), "\n"; }
echo match (true) { $count["the"] > 2 => "many", default => "few" }, " ", $count["cat"] ?? 0, "\n";
enum Kind: string { case Box = "b"; case Cell = "c"; }
var_dump(Kind::from("c"), strrev("abc"), str_contains("carrel", "arr"), [1, 2] <=> [1, 3]);
exit(3);
