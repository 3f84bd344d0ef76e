# Reads the events of `go test -json`, and prints what the tests have counted, why some were skipped,
# the slowest ten, the flaky ones with the output of their failure, and how long all took. Its last
# line is "N passed, N failed, N skipped".
#
# variables: what (the tests), took and budget (seconds), failed_run (the exit status of gotestsum),
# summary (a file for the last line, or empty)

function field(name,   at, text) { # the value of a string in the event, still encoded
	at = index($0, "\"" name "\":\"")
	if (!at)
		return ""
	text = substr($0, at + length(name) + 4)
	match(text, /^([^"\\]|\\.)*/)
	return substr(text, 1, RLENGTH)
}

function decoded(text) {
	gsub(/\\n/, "\n", text)
	gsub(/\\t/, "\t", text)
	gsub(/\\u003c/, "<", text)
	gsub(/\\u003e/, ">", text)
	gsub(/\\u0026/, "\\&", text)
	gsub(/\\"/, "\"", text)
	gsub(/\\\\/, "\\", text)
	return text
}

function test_name(   test) { # of the event's test, with its package
	test = field("Package") " " field("Test")
	sub(/^github.com\/noonlock\/noonlock\//, "", test)
	return test
}

function leaf(test) { # whether no other test is a part of it
	return !(test in parent)
}

/"Action":"output"/ {
	test = test_name()
	# Only the first run of a test counts.
	if (!(test in result))
		output[test] = output[test] decoded(field("Output"))
	next
}

/"Action":"attr"/ {
	value = decoded(field("Value"))
	counted[++counted_n] = field("Test") ": " value
	is_count[value] = 1
}

/"Action":"(pass|fail|skip)"/ && /"Test":"/ {
	test = test_name()
	action = field("Action")
	if (!(test in result))
		order[++tests] = test
	if (action == "fail")
		failures[test]++
	result[test] = action
	for (up = test; sub(/\/[^\/ ]*$/, "", up) && up ~ / /; )
		parent[up] = 1
	match($0, /"Elapsed":[0-9.]+/)
	seconds[test] = substr($0, RSTART + 10, RLENGTH - 10) + 0
}

END {
	for (i = 1; i <= tests; i++) {
		test = order[i]
		if (!leaf(test) && result[test] != "fail")
			continue
		if (result[test] == "skip" && reason(test) == "make test runs it") {
			elsewhere++
			continue
		}
		number[result[test]]++
		if (result[test] == "skip")
			skipped[reason(test)]++
		if (failures[test] && result[test] == "pass")
			flaky[++flakies] = test
	}
	for (i = 1; i <= counted_n; i++)
		print (i == 1 ? "\ncounted by the tests:\n  " : "  ") counted[i]
	if (elsewhere)
		print "\nleft to make test, as they need no other topology: " elsewhere
	for (why in skipped)
		print (said++ ? "  " : "\nskipped:\n  ") skipped[why] ": " why
	print "\nslowest tests:"
	for (n = 0; n < 10; n++) {
		slowest = ""
		for (i = 1; i <= tests; i++)
			if (leaf(order[i]) && !(order[i] in shown) && (slowest == "" || seconds[order[i]] > seconds[slowest]))
				slowest = order[i]
		if (slowest == "")
			break
		shown[slowest] = 1
		printf "  %6.1f s  %s\n", seconds[slowest], slowest
	}
	for (i = 1; i <= flakies; i++) {
		print (i == 1 ? "\nflaky: these failed, and passed when they ran again, alone. Each is a defect:\n  " : "  ") flaky[i]
		print excerpt(flaky[i])
	}
	if (failed_run && !number["fail"])
		number["fail"] = 1 # a package that does not build or ended early
	printf "\n%s took %d s; the budget is %d s%s\n", what, took, budget, (took > budget ? ": EXCEEDED, see CONTRIBUTING.md" : "")
	counts = sprintf("%d passed, %d failed, %d skipped", number["pass"], number["fail"], number["skip"])
	print counts
	if (summary != "")
		print counts > summary
	exit failed_run
}

function reason(test,   lines, n, i, line) {
	n = split(output[test], lines, "\n")
	for (i = n; i > 0; i--)
		if (lines[i] ~ /^ +[a-zA-Z0-9_.-]+\.go:[0-9]+: /) {
			line = lines[i]
			sub(/^ +[^ ]+ /, "", line)
			return line
		}
	return "no reason given"
}

function excerpt(test,   lines, n, i, text, many, said) {
	n = split(output[test], lines, "\n")
	for (i = 1; i <= n && many < 8; i++) {
		said = lines[i]
		sub(/^ +[^ ]+: /, "", said)
		if (lines[i] !~ /^=== / && lines[i] != "" && !(said in is_count)) {
			text = text "      " substr(lines[i], 1, 300) "\n"
			many++
		}
	}
	return text
}
