//go:build !race

package explorer

const lessDeep = 0
