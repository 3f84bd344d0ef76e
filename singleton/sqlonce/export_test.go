package sqlonce

// Validate returns the error of the first invalid field.
func (m Marker) Validate() error { return m.validate() }
