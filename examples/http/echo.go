package frameworks

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/ratelimit-functions/ratelimit/client"
)

// Echo returns a handler built with the Echo framework, which can wrap net/http middleware.
func Echo(limiter *client.Client) (http.Handler, error) {
	limit, err := newLimit(limiter)
	if err != nil {
		return nil, err
	}
	server := echo.New()
	server.GET("/items/:id", func(c *echo.Context) error {
		return c.String(http.StatusOK, "item "+c.Param("id")+"\n")
	}, echo.WrapMiddleware(limit))
	return server, nil
}
