package propose

import (
	"slices"
	"strings"
	"unicode"
)

// wordsOf splits the name of a field: orderId, order_id and order-ID are
// "order", "id".
func wordsOf(name string) []string {
	var words []string
	var word []rune
	end := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
		}
		word = word[:0]
	}
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end()
			continue
		case i > 0 && unicode.IsUpper(r) && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			end()
		}
		word = append(word, r)
	}
	end()
	return words
}

func last(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}

func first(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return words[0]
}

func oneOf(s string, list string) bool { return s != "" && slices.Contains(strings.Fields(list), s) }

// Words by what they say of a field. Lists of words are heuristics and only
// rank what the values allow.
const (
	eventIDs   = "eventid eventuuid eventguid eventkey idempotencykey idempotencyid dedupid dedupkey deduplicationid deduplicationkey uniqueid transactionid txid txnid"
	messageIDs = "messageid messageuuid msgid deliveryid notificationid webhookid requestid recordid"
	plainIDs   = "id uuid guid uid ulid"
	idWords    = "id ids uuid guid uid key no nr num number ref reference code"
	offsets    = "offset offsets position pos line lineno row rownum index idx partition"
	hashes     = "hash checksum digest sha sha1 sha256 sha512 md5 crc etag signature fingerprint"
	versions   = "version revision rev seq sequence sequencer generation lsn seqno"
	changes    = "updated modified changed update modification"
	times      = "time timestamp ts at date datetime occurred when"
	births     = "created creation create born birth start started begin due expires expiry scheduled end ended published"
	amounts    = "amount total price cost count size length quantity qty lat lon latitude longitude mag weight age score rate percent cents attempt attempts retry retries"
	passing    = "trace span correlation session parent causation conversation thread batch schema partition worker process"
	actors     = "sender user actor author owner creator sponsor tenant organization organisation org installation repository repo source client app application meta metadata context header headers trace"
	things     = "flight order customer account device sensor host product sku item invoice shipment parcel package booking reservation ticket symbol isbn vin station vehicle subject entity aggregate patient asset machine contract policy payment subscription member employee article document issue"
)

// namesThing reports a name that says "this identifies something".
func namesThing(words []string) bool { return oneOf(last(words), idWords) }

// idName ranks the name of a field as that of an event's id.
func (f *field) idName() (score int, why string) {
	words := wordsOf(f.name())
	joined, end := strings.Join(words, ""), last(words)
	switch {
	case oneOf(joined, eventIDs):
		return 40, "its name says that it identifies the event"
	case oneOf(joined, messageIDs):
		return 25, "its name says that it identifies the message"
	case oneOf(joined, plainIDs):
		return 30, "its name says that it is an id"
	case oneOf(end, offsets):
		return -60, "it says where a message stands, which differs when the same event is published again"
	case oneOf(end, hashes):
		return -60, "a hash of the content makes two equal events one"
	case oneOf(first(words), passing) && namesThing(words):
		return -20, "its name says that it identifies something several events share"
	case oneOf(end, versions) || oneOf(end, amounts):
		return -40, "its name says that it counts or measures"
	case namesThing(words):
		return 20, "its name says that it identifies something"
	}
	return 0, ""
}

// keyName ranks the name of a field as that of the entity a message is about.
func (f *field) keyName() int {
	words := wordsOf(f.name())
	joined, end := strings.Join(words, ""), last(words)
	parent := ""
	if len(f.path) > 1 {
		parent = last(wordsOf(f.path[len(f.path)-2]))
	}
	score := 0
	switch {
	case oneOf(joined, eventIDs) || oneOf(joined, messageIDs) || oneOf(end, offsets+" "+hashes+" "+versions+" "+amounts):
		return -60
	case oneOf(first(words), passing) && namesThing(words):
		return -20
	case oneOf(joined, plainIDs) && parent != "":
		score = 30
	case oneOf(joined, plainIDs):
		score = 20
	case namesThing(words) && len(words) > 1:
		score = 25
	case namesThing(words) || oneOf(joined, things):
		score = 20
	}
	if oneOf(parent, actors) || oneOf(first(words), actors) {
		score -= 15 // who did it, not what it was done to
	}
	return score
}

// versionName ranks the name of a field as that of a version.
func (f *field) versionName() int {
	words := wordsOf(f.name())
	joined, end := strings.Join(words, ""), last(words)
	switch {
	case len(words) > 1 && oneOf(first(words), "schema api spec protocol format app client software"):
		return 0 // of how it is written, not of what it says
	case oneOf(end, versions) || oneOf(joined, "sequencenumber sequenceid seqnum seqid versionid versionnumber revisionnumber revisionid"):
		return 40
	case slices.ContainsFunc(words, func(w string) bool { return oneOf(w, births) }):
		return 0
	case slices.ContainsFunc(words, func(w string) bool { return oneOf(w, changes) }):
		return 36
	case oneOf(end, times):
		return 15
	}
	return 0
}
