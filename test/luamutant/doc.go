// Package luamutant changes Lua scripts, one place at a time, as somebody might who
// makes a mistake. A test suite is good if it notices each such mutant.
//
// Generate knows these operators. The text of a mutant's Key shows which one it was.
//
//   - condition: an `if`, `elseif` or `while` is taken always, or never
//   - operand: one side of an `and` or `or` is missing
//   - bound: `<` and `<=`, `>` and `>=` change places, a `+ 1` or `- 1` is missing,
//     `==` and `~=` change places where no condition would show it
//   - sum: `+` and `-` change places; of math.max and math.min one operand remains
//   - number: one more; twice as many if there are 1000; one turn of a loop that counts
//   - statement: a call, an assignment, a `return` or a `break` is missing
//   - write: a field of an HSET or of a table, an option of a SET, a key of an EXISTS or
//     DEL is missing
//   - keys: two neighbours among KEYS, or among the arguments of a function, are swapped
//   - error: redis.pcall becomes redis.call
//
// Operators that others imply are left out: where it is noticed that a condition is always
// true, and that it is never true, it is noticed that it was negated; where both operands of
// an `and` are noticed to be missing, so is an `or` in its place.
//
// It works on tokens, not on a syntax tree, and relies on how the scripts are written:
// one statement on a line, no long strings, no semicolons. Every mutant of such a script
// is Lua.
package luamutant
