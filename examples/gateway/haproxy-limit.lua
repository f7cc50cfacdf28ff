-- Asks ratelimit-gateway whether to allow a request. haproxy.cfg loads this file.

local gateway = "http://127.0.0.1:8080/check/api/address"

core.register_action("limit", { "http-req" }, function(txn)
    local answer = core.httpclient():get({
        url = gateway,
        headers = { ["x-forwarded-for"] = { txn.sf:src() }, ["x-forwarded-uri"] = { txn.sf:pathq() } },
        timeout = 100, -- ms
    })
    if answer.status == 400 then
        txn:Alert("the gateway refuses the path; it says: " .. answer.body)
        txn:done(txn:reply({ status = 500 })) -- a wrong configuration must not go unnoticed
    end
    if answer.status ~= 200 and answer.status ~= 429 then
        txn:Warning("no decision: status " .. answer.status)
        return -- allow: a limiter that is down must not take down your application
    end
    local function field(name)
        return answer.headers[name] and answer.headers[name][0]
    end
    txn:set_var("txn.limit_left", field("ratelimit"))
    txn:set_var("txn.limit_policy", field("ratelimit-policy"))
    if answer.status == 429 then
        local reply = txn:reply({ status = 429, reason = "Too Many Requests", body = answer.body })
        reply:add_header("Content-Type", field("content-type"))
        if field("retry-after") then
            reply:add_header("Retry-After", field("retry-after"))
        end
        txn:done(reply)
    end
end)
