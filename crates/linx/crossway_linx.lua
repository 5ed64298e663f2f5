-- Dissector for the captures of `crossway linx trace`:
--
--   tshark -X lua_script:crossway_linx.lua -r FILE -Y 'crossway_linx.signal == 0x10000001'
--
-- The packets of such a capture have the link type USER0 (147). The names of endpoints are taken from the records in which they open, exist or are published.

local proto = Proto("crossway_linx", "Crossway LINX")

local EVENTS = {
    [1] = "Signal", [2] = "Open", [3] = "Close", [4] = "Hunt", [5] = "Cancel hunt", [6] = "Found", [7] = "Attach", [8] = "Detach",
    [9] = "Gone", [10] = "Exists", [32] = "Link query", [33] = "Link cancel", [34] = "Link publish", [35] = "Link unpublish",
    [36] = "Link answer", [37] = "Link data", [38] = "Link credit",
}
local SIGNAL, OPEN, FOUND, GONE, EXISTS, LINK_DATA, LINK_CREDIT = 1, 2, 6, 9, 10, 37, 38
local WAYS = { [1] = "sent", [2] = "received" }

local f = proto.fields
f.version = ProtoField.uint8("crossway_linx.version", "Version")
f.event = ProtoField.uint8("crossway_linx.event", "Event", base.DEC, EVENTS)
f.way = ProtoField.uint8("crossway_linx.way", "Way", base.DEC, WAYS)
f.oob = ProtoField.bool("crossway_linx.oob", "Out of band", 8, nil, 0x01)
f.reporter = ProtoField.uint32("crossway_linx.reporter", "Reported by (0: the node)", base.HEX)
f.from = ProtoField.uint32("crossway_linx.from", "From", base.HEX)
f.to = ProtoField.uint32("crossway_linx.to", "To", base.HEX)
f.from_name = ProtoField.string("crossway_linx.from_name", "Name of the sender")
f.to_name = ProtoField.string("crossway_linx.to_name", "Name of the receiver")
f.signal = ProtoField.uint32("crossway_linx.signal", "Signal number", base.HEX)
f.size = ProtoField.uint32("crossway_linx.size", "Size in bytes")
f.id = ProtoField.uint64("crossway_linx.id", "Reference")
f.name = ProtoField.string("crossway_linx.name", "Name or path")
f.link = ProtoField.string("crossway_linx.link", "Link")
f.payload = ProtoField.bytes("crossway_linx.payload", "Payload")

local too_short = ProtoExpert.new("crossway_linx.malformed", "The record is not complete", expert.group.MALFORMED, expert.severity.ERROR)
proto.experts = { too_short }

local FIXED = 32
local names = {}

function proto.init()
    names = {}
end

local function name_of(spid)
    return names[spid] or string.format("0x%x", spid)
end

-- A text at `at`, with its length in two bytes before it; also returns where it ends, or nil if it is not complete.
local function text(buffer, at)
    if at + 2 > buffer:len() then return nil end
    local last = at + 2 + buffer(at, 2):uint()
    if last > buffer:len() then return nil end
    if last == at + 2 then return "", last end
    return buffer(at + 2, last - at - 2):string(), last
end

function proto.dissector(buffer, pinfo, tree)
    pinfo.cols.protocol = "LINX"
    local root = tree:add(proto, buffer())
    local name, link, name_end, link_end
    if buffer:len() >= FIXED then
        name, name_end = text(buffer, FIXED)
        if name_end then link, link_end = text(buffer, name_end) end
    end
    if not link_end then
        root:add_proto_expert_info(too_short)
        return buffer:len()
    end
    local event, way = buffer(1, 1):uint(), buffer(2, 1):uint()
    local from, to = buffer(8, 4):uint(), buffer(12, 4):uint()
    local number, size = buffer(16, 4):uint(), buffer(20, 4):uint()
    if event == OPEN or event == EXISTS then names[from] = name end

    root:add(f.version, buffer(0, 1))
    root:add(f.event, buffer(1, 1))
    root:add(f.way, buffer(2, 1))
    root:add(f.oob, buffer(3, 1))
    root:add(f.reporter, buffer(4, 4))
    root:add(f.from, buffer(8, 4))
    root:add(f.to, buffer(12, 4))
    -- Numbers in the messages of links are partly those of the other node.
    if event < 32 then
        if names[from] then root:add(f.from_name, names[from]):set_generated() end
        if names[to] then root:add(f.to_name, names[to]):set_generated() end
    end
    if event == SIGNAL or event == LINK_DATA then root:add(f.signal, buffer(16, 4)) end
    if event == SIGNAL or event == LINK_DATA or event == LINK_CREDIT then root:add(f.size, buffer(20, 4)) end
    root:add(f.id, buffer(24, 8))
    if name ~= "" then root:add(f.name, buffer(FIXED + 2, name_end - FIXED - 2)) end
    if link ~= "" then root:add(f.link, buffer(name_end + 2, link_end - name_end - 2)) end
    if link_end < buffer:len() then root:add(f.payload, buffer(link_end)) end

    pinfo.cols.src = event < 32 and name_of(from) or ""
    pinfo.cols.dst = event < 32 and to ~= 0 and name_of(to) or ""
    local words = { EVENTS[event] or string.format("Event %d", event) }
    if event == SIGNAL then
        words[2] = string.format("0x%x %s, %d bytes", number, WAYS[way] or "?", size)
    elseif event == FOUND or event == GONE then
        words[2] = name_of(from)
    elseif name ~= "" then
        words[2] = name
    end
    if link ~= "" then words[#words + 1] = string.format("(%s by link %s)", WAYS[way] or "?", link) end
    pinfo.cols.info = table.concat(words, " ")
    return buffer:len()
end

DissectorTable.get("wtap_encap"):add(wtap.USER0, proto)
