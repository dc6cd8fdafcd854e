-- Reference Lua for Fluent Bit 5.1: one call per record does path -> fields, header/JSON -> time, level, ids.
-- TZ_* is what a generator would render from the IANA zone (local-time thresholds -> UTC offset, see mk_tz.py).
local TEMP_DIR = "@RAY@"          -- path prefix cut from `file`
local LATE     = nil                 -- seconds, e.g. 3000
local DEDUP    = true                -- components: [default]
local TZ_AT  = {-1000000000000,1427598000,1445742000,1459047600,1477796400,1490497200,1509246000,1521946800,1540695600,1554001200,1572145200,1585450800,1603594800,1616900400,1635649200,1648350000,1667098800,1679799600,1698548400,1711854000,1729998000,1743303600,1761447600,1774753200,1792897200,1806202800,1824951600,1837652400,1856401200,1869102000,1887850800,1901156400,1919300400,1932606000,1950750000,1964055600,1982804400,1995505200,2014254000,2026954800,2045703600,2058404400,2077153200,2090458800,2108602800,2121908400,2140052400,2153358000,2172106800,2184807600,2203556400}
local TZ_OFF = {3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600,7200,3600}
local LEVEL = {T="trace",D="debug",I="info",W="warn",E="error",C="fatal",F="fatal",
  TRACE="trace",DEBUG="debug",INFO="info",WARN="warn",WARNING="warn",ERROR="error",CRITICAL="fatal",FATAL="fatal"}

local find, match, sub, gsub, byte, char, fmt = string.find, string.match, string.sub, string.gsub, string.byte, string.char, string.format

local NODE
do local f = io.open("/proc/sys/kernel/hostname"); NODE = f and f:read("*l") or "unknown"; if f then f:close() end end

-- days since 1970-01-01 (proleptic Gregorian)
local function days(y, m, d)
  if m <= 2 then y = y - 1; m = m + 12 end
  return 365*y + math.floor(y/4) - math.floor(y/100) + math.floor(y/400) + math.floor((153*(m-3)+2)/5) + d - 1 - 719468
end
local hour_key, hour_base
local function epoch(s)   -- s = "YYYY-mm-dd HH:MM:SS" naive local -> UTC seconds; one table walk per distinct hour... minute-exact
  local k = sub(s, 1, 16)
  if k ~= hour_key then
    local y, mo, d, h, mi = match(k, "^(%d%d%d%d)%-(%d%d)%-(%d%d)[ T](%d%d):(%d%d)$")
    if not y then return nil end
    local loc = days(tonumber(y), tonumber(mo), tonumber(d)) * 86400 + tonumber(h) * 3600 + tonumber(mi) * 60
    local lo, hi = 1, #TZ_AT            -- last threshold <= loc
    while lo < hi do local mid = math.ceil((lo + hi) / 2); if TZ_AT[mid] <= loc then lo = mid else hi = mid - 1 end end
    hour_key, hour_base = k, loc - TZ_OFF[lo]
  end
  return hour_base + tonumber(sub(s, 18, 19))
end

-- JSON: strict decoder for one object; returns nil on error. Big integers stay text.
local ESCAPES = {b="\b",f="\f",n="\n",r="\r",t="\t",['"']='"',["\\"]="\\",["/"]="/"}
local function utf8(c)
  if c < 0x80 then return char(c) end
  if c < 0x800 then return char(0xC0+math.floor(c/64), 0x80+c%64) end
  if c < 0x10000 then return char(0xE0+math.floor(c/4096), 0x80+math.floor(c/64)%64, 0x80+c%64) end
  return char(0xF0+math.floor(c/262144), 0x80+math.floor(c/4096)%64, 0x80+math.floor(c/64)%64, 0x80+c%64)
end
local function jstring(s, i)            -- i: just after the opening quote
  local j = find(s, '["\\%c]', i)
  if not j then return nil end
  if byte(s, j) == 34 then return sub(s, i, j-1), j+1 end
  local out = {}
  while true do
    local c = byte(s, j)
    if c == 34 then out[#out+1] = sub(s, i, j-1); return table.concat(out), j+1 end
    if c ~= 92 then return nil end      -- raw control character: invalid JSON
    out[#out+1] = sub(s, i, j-1)
    local e = sub(s, j+1, j+1)
    if e == "u" then
      local h = match(s, "^%x%x%x%x", j+2); if not h then return nil end
      local c1 = tonumber(h, 16); i = j + 6
      if c1 >= 0xD800 and c1 < 0xDC00 then
        local h2 = match(s, "^\\u(%x%x%x%x)", i)
        if h2 then c1 = 0x10000 + (c1-0xD800)*1024 + (tonumber(h2,16)-0xDC00); i = i + 6 end
      end
      out[#out+1] = utf8(c1)
    else
      local r = ESCAPES[e]; if not r then return nil end
      out[#out+1] = r; i = j + 2
    end
    j = find(s, '["\\%c]', i); if not j then return nil end
  end
end
local jvalue
local function skip(s, i) return find(s, "[^ \t\r\n]", i) or #s + 1 end
local function jobject(s, i, depth)     -- i: just after "{"
  local o = {}
  i = skip(s, i)
  if sub(s, i, i) == "}" then return o, i + 1 end
  while true do
    if byte(s, i) ~= 34 then return nil end
    local k; k, i = jstring(s, i + 1); if not k then return nil end
    i = skip(s, i); if byte(s, i) ~= 58 then return nil end
    local v; v, i = jvalue(s, skip(s, i + 1), depth); if i == nil then return nil end
    o[k] = v
    i = skip(s, i); local c = byte(s, i)
    if c == 125 then return o, i + 1 elseif c ~= 44 then return nil end
    i = skip(s, i + 1)
  end
end
local function jarray(s, i, depth)
  i = skip(s, i)
  if sub(s, i, i) == "]" then return {}, i + 1 end
  while true do
    local v; v, i = jvalue(s, i, depth); if i == nil then return nil end
    i = skip(s, i); local c = byte(s, i)
    if c == 93 then return {}, i + 1 elseif c ~= 44 then return nil end
    i = skip(s, i + 1)
  end
end
jvalue = function(s, i, depth)
  local c = byte(s, i)
  if c == 34 then return jstring(s, i + 1) end
  if c == 123 then if depth > 50 then return nil end return jobject(s, i + 1, depth + 1) end
  if c == 91 then if depth > 50 then return nil end return jarray(s, i + 1, depth + 1) end
  local n = match(s, "^-?%d+%.?%d*[eE]?[+-]?%d*", i)
  if n then return n, i + #n end        -- numbers stay text: 19 digits survive
  local w = match(s, "^%a+", i)
  if w == "true" or w == "false" then return w == "true", i + #w end
  if w == "null" or w == "NaN" or w == "Infinity" then return false, i + #w end
  return nil
end
local function json(s)
  local ok, o, i = pcall(jobject, s, 2, 1)
  if not ok or not o then return nil end
  if skip(s, i) <= #s then return nil end
  return o
end

-- path -> fields, cached per path
local cache, cached = {}, 0
local function from_path(path)
  local p = cache[path]; if p then return p end
  if cached > 20000 then cache, cached = {}, 0 end
  p = {}
  local rel = path
  if sub(path, 1, #TEMP_DIR + 1) == TEMP_DIR .. "/" then rel = sub(path, #TEMP_DIR + 2) end
  p.file = rel
  p.session = match(rel, "^(session_[^/]+)/")
  local dir, base = match(rel, "/logs/(.-)([^/]+)$")
  if not base then dir, base = "", match(rel, "([^/]+)$") end
  base = gsub(base, "%.%d+$", function(x) if match(base, "%.log%.%d+$") or match(base, "%.out%.%d+$") or match(base, "%.err%.%d+$") then return "" end return x end)
  local w, j, pid, st = match(base, "^worker%-(%x+)%-(%x+)%-(%d+)%.(%a+)$")
  if w and #w == 56 then
    p.component, p.worker_id, p.pid, p.stream = "worker", w, pid, st
    if j ~= "ffffffff" then p.job_id = j end
  else
    local w2, pid2, st2 = match(base, "^io_worker%-(%x+)%-(%d+)%.(%a+)$")
    local k3, w3, pid3 = match(base, "^python%-core%-([%a_]+)%-(%x+)_(%d+)%.log$")
    if w2 then p.component, p.worker_id, p.pid, p.stream = "io_worker", w2, pid2, st2
    elseif w3 then p.component, p.worker_id, p.pid = "core_worker", w3, pid3; if k3 == "driver" then p.job_id = sub(w3, 1, 8) end
    elseif dir == "serve/" then p.component = "serve"
    elseif dir == "train/" then p.component = "train"; p.worker_id = match(base, "%-(%x+)%.log$")
    elseif dir == "ray-data/" then p.component = "ray_data"
    elseif match(base, "^job%-driver%-") then p.component, p.submission_id = "job_driver", match(base, "^job%-driver%-(.+)%.log$")
    elseif match(base, "^runtime_env_setup%-") then p.component = "runtime_env_setup"; p.job_id = match(base, "^runtime_env_setup%-(%x%x%x%x%x%x%x%x)%.log$")
    elseif match(base, "^dashboard_agent%.") then p.component = "dashboard_agent"
    elseif match(base, "^dashboard") then p.component = "dashboard"
    elseif match(base, "^ray_client_server") then p.component = "ray_client_server"
    else p.component = match(base, "^([%a_]+)%.") end
  end
  cache[path] = p; cached = cached + 1
  return p
end

local IDS = {"job_id","worker_id","actor_id","actor_name","task_id","task_name","node_id"}
local DATE = "(%d%d%d%d%-%d%d%-%d%d %d%d:%d%d:%d%d)"
local P_CPP   = "^%[" .. DATE .. ",(%d%d%d) (%u) (%d+) %d+%]"
local P_DATE  = "^" .. DATE .. ",?(%d*)[ \t]*(%u*)"
local P_SERVE = "^(%u+) " .. DATE .. ",(%d%d%d) [^ ]+ [^ ]+ "
local P_ABSL  = "^([IWEF])%d%d%d%d %d%d:%d%d:%d%d%.%d%d%d%d%d%d +(%d+) "

function ray(tag, ts, rec)
  local raw, path = rec.log, rec.path       -- in_tail with multiline.parser always uses the key `log`, whatever `key` says
  if type(raw) ~= "string" then return 0, ts, rec end
  if byte(raw, -1) == 10 then raw = gsub(raw, "\n+$", "") end    -- multi-line records end in "\n"
  local p = from_path(path)
  local comp, stream = p.component, p.stream
  if comp == "worker" or comp == "io_worker" then
    local b = byte(raw, 1)
    if b == 58 and (find(raw, "^:job_id:") or find(raw, "^:actor_name:") or find(raw, "^:task_name:")) then return -1, ts, rec end
    if b ~= 123 and not find(raw, "\n", 1, true) then            -- glued marker
      local at = find(raw, ":task_name:[^:]+$") or find(raw, ":job_id:%x+$") or find(raw, ":actor_name:[^:]+$")
      if at then raw = sub(raw, 1, at - 1) end
    end
  elseif DEDUP and (comp == "job_driver" or comp == "ray_client_server") and find(raw, "pid=", 1, true) then
    local c = gsub(sub(raw, 1, 400), "\27%[[%d;]*m", "")
    if find(c, "^%([^\n]*pid=%d+[^)]*%) ") then return -1, ts, rec end
  end
  if not find(raw, "%S") then return -1, ts, rec end

  local out = {log = raw, component = comp, node = NODE, session = p.session, file = p.file, stream = stream, pid = p.pid,
    worker_id = p.worker_id, job_id = p.job_id, submission_id = p.submission_id}
  local clean = raw
  if find(raw, "\27", 1, true) then clean = gsub(raw, "\27%[[%d;]*%a", "") end
  local sec, nsec
  local b = byte(clean, 1)
  if b == 123 and sub(clean, 2, 2) == '"' and find(clean, "}\r?$") and not find(clean, "\n", 1, true) then
    local j = json(clean)
    if not j then
      out.parse_error = "true"
    else
      if DEDUP and comp == "worker" and stream == "err" and (j.component_name or (type(j.levelname) == "string" and #j.levelname == 1)) then return -1, ts, rec end
      local l = j.levelname or j.severity
      if type(l) == "string" then out.level = LEVEL[l] end
      for i = 1, #IDS do local v = j[IDS[i]]; if type(v) == "string" and v ~= "" then out[IDS[i]] = v end end
      if type(j.process) == "string" then out.pid = j.process end
      local t = j.timestamp_ns
      if type(t) == "string" and #t == 19 then sec, nsec = tonumber(sub(t, 1, 10)), tonumber(sub(t, 11))
      elseif type(j.asctime) == "string" then
        local d, f = match(j.asctime, "^" .. DATE .. ",(%d%d%d)")
        if d then sec, nsec = epoch(d), tonumber(f) * 1000000 end
      end
    end
  else
    local d, f, l, pid, dup = match(clean, P_CPP)
    if d then pid = select(4, match(clean, P_CPP)); dup = true
    else
      l, d, f = match(clean, P_SERVE)
      if d and find(clean, " %-%- ", 1) then dup = true
      else
        d, f, l = match(clean, P_DATE)
        if d and l and not LEVEL[l] then l = nil end
        if d and #l_or(l) == 1 then l = nil end
        if not d then l, pid = match(clean, P_ABSL) end
      end
    end
    if d then sec = epoch(d); nsec = (tonumber(f) or 0) * 1000000 end
    if l then out.level = LEVEL[l] end
    if pid then out.pid = pid end
    if dup and DEDUP and comp == "worker" and stream == "err" then
      local nl = find(raw, "\n", 1, true)
      local rest = nl and sub(raw, nl + 1) or ""
      if not find(rest, "%S") then return -1, ts, rec end
      out.log, out.level, out.pid = rest, nil, p.pid
    end
  end
  if sec and LATE and os.time() - sec > LATE then          -- Loki refuses what is > 1 h behind its stream: keep the own time as metadata
    out.entry_time = fmt("%d%09d", sec, nsec or 0); sec = nil
  end
  if sec then return 1, {sec = sec, nsec = nsec or 0}, out end
  out.time_source = "read"
  return 2, ts, out
end
function l_or(l) return l or "" end
