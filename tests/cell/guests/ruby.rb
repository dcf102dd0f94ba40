Part = Struct.new(:name, :price) do
  include Comparable
  def <=>(other) = price <=> other.price
end

parts = [["nut", 3], ["bolt", 1], ["gear", 12], ["ä", 5]].map { |n, p| Part.new(n, Rational(p, 7)) }
puts parts.sort.map { |p| "#{p.name}=#{p.price}" }.join(",")
puts "the cat and the hat".scan(/\w+/).tally.sort_by { |w, n| [-n, w] }.inspect
puts (1..29).inject(:*), 0.1 + 0.2, 1e22, -7 / 2, 3.pow(5, 7)
puts format("%010.3f|%-5s|%#x|%+d", 1234.5678, "x", 255, 7)
puts %w[a b c].permutation.first(3).inspect, [3, 1, 2].sort.reverse.each_slice(2).to_a.inspect
puts "héllo".bytes.sum, "héllo".reverse.upcase, "a-b_c".tr("-_", "  ").split.inspect
fib = Enumerator.new { |y| a, b = 0, 1; loop { y << a; a, b = b, a + b } }
puts fib.lazy.select(&:even?).first(6).inspect
puts({ a: 1, "b" => [nil, true] }.to_a.flatten.inspect, [1, 2.0, "x", nil, :y].map(&:class).inspect)
begin Integer("x") rescue puts $!.class, $!.message end
case { kind: :box, size: [2, 3] }
in { kind: :box, size: [w, h] } then puts w * h
end
puts ARGV.inspect, STDIN.gets
exit 3
