// Package luamutant changes Lua scripts at one place at a time, like a typical mistake. A good test
// suite detects each such mutant.
//
// Generate has these operators. The Key of a mutant shows which one was applied.
//
//   - condition: an `if`, `elseif` or `while` is always or never taken
//   - operand: one side of an `and` or `or` is removed
//   - bound: `<` and `<=`, or `>` and `>=`, are exchanged; a `+ 1` or `- 1` is removed; `==` and
//     `~=` are exchanged outside of conditions
//   - sum: `+` and `-` are exchanged; math.max and math.min are replaced by one operand
//   - number: incremented by one; doubled from 1000; a counting loop runs once
//   - statement: a call, an assignment, a `return` or a `break` is removed
//   - write: a field of an HSET or of a table, an option of a SET, or a key of an EXISTS or DEL is
//     removed
//   - keys: two adjacent KEYS, or two adjacent arguments of a function, are swapped
//   - error: redis.pcall becomes redis.call
//
// Operators that follow from others are left out. If the tests detect that a condition is always
// true and that it is never true, they also detect its negation. If they detect each missing
// operand of an `and`, they also detect an `or` in its place.
//
// Generate works on tokens, not on a syntax tree. It relies on the style of the scripts: one
// statement per line, no long strings, no semicolons. Every mutant of such a script is valid Lua.
package luamutant
