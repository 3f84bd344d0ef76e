package sqlonce

// Validate returns the refusal of the first invalid field.
func (m Marker) Validate() error { return m.validate() }
