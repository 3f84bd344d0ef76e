//go:build race

package explorer

// lessDeep is how many steps less are explored under the race detector, which
// makes everything several times slower.
const lessDeep = 2
