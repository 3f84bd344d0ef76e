// Package bench measures noonlock against raw Redis commands, in the same run
// and in turns, as machines are shared and noisy: read the ratios. Nothing here
// passes or fails by a time.
//
//	make bench
//
// The raw samples of each benchmark are kept as CSV in the folder that
// NOONLOCK_BENCH_DIR names, by default bench/results.
package bench
