//go:build race

package explorer

// lessDeep is the number of steps by which the depth is reduced under the race detector, which is
// several times slower.
const lessDeep = 2
