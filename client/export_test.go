package client

// Trust tells c that its rdb ends every call by itself, so that no goroutine is between a test and its fake.
func Trust(c *Client) { c.punctual = true }
