// Package bench measures noonlock and raw Redis commands in the same run, alternately. Machines
// are shared and noisy, so compare the ratios. No benchmark passes or fails by a time.
//
//	make bench
//
// The raw samples of each benchmark are written as CSV files to the directory in
// NOONLOCK_BENCH_DIR, by default bench/results.
package bench
