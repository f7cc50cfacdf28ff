package frameworks

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/ratelimit-functions/ratelimit/client"
)

// ginMiddleware adapts net/http middleware to gin. In gin, the context calls the next handler.
func ginMiddleware(middleware func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed = true
			c.Request = r // the middleware added values to r's context
			c.Next()
		})
		c.Request.Pattern = c.FullPath()
		middleware(next).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}

// Gin returns a gin router with a rate-limited route.
func Gin(limiter *client.Client) (http.Handler, error) {
	limit, err := newLimit(limiter)
	if err != nil {
		return nil, err
	}
	router := gin.New()
	router.GET("/items/:id", ginMiddleware(limit), func(c *gin.Context) {
		c.String(http.StatusOK, "item %s\n", c.Param("id"))
	})
	return router, nil
}
