package cli

// SetServiceAccount replaces the folder of the pod's service account.
func SetServiceAccount(folder string) { serviceAccount = folder }
