-- Gets a decision from ratelimit-gateway for each request; apache.conf runs this script.

local http = require "socket.http"
local ltn12 = require "ltn12"

local gateway = "http://127.0.0.1:8080/check/api/address"
http.TIMEOUT = 0.1 -- seconds; the request occupies a thread of Apache during this time

function limit(r)
    if not r.is_initial_req then
        return apache2.DECLINED -- do not count a request again after an internal redirect
    end
    local body = {}
    local _, status, fields = http.request {
        url = gateway,
        headers = { ["X-Forwarded-For"] = r.useragent_ip, ["X-Forwarded-Uri"] = r.unparsed_uri },
        sink = ltn12.sink.table(body),
    }
    if status == 400 then
        r:err("the gateway refuses the path; it says: " .. table.concat(body))
        return 500 -- a wrong configuration must not go unnoticed
    end
    if status ~= 200 and status ~= 429 then
        r:err("no decision: " .. tostring(status))
        return apache2.DECLINED -- allow: a limiter that is down must not take down your application
    end
    r.err_headers_out["RateLimit"] = fields["ratelimit"] -- Apache sends these with every status
    r.err_headers_out["RateLimit-Policy"] = fields["ratelimit-policy"]
    if status == 200 then
        return apache2.DECLINED
    end
    if fields["retry-after"] then
        r.err_headers_out["Retry-After"] = fields["retry-after"]
    end
    r.status = 429
    r.content_type = fields["content-type"]
    r:write(table.concat(body))
    return apache2.DONE
end
