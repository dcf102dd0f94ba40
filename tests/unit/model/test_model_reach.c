/* Which requests make a provider do more than answer. */
#include "tests/unit/unit.h"

#include <string.h>

#include "base/defer.h"
#include "model/json.h"
#include "model/reach.h"

#define A "anthropic"
#define C "chat"
#define R "responses"
#define G "gemini"
#define IN_A(blocks) "{'messages':[{'role':'user','content':[" blocks "]}]}"
#define IN_C(blocks) "{'messages':[{'role':'user','content':[" blocks "]}]}"
#define IN_R(items) "{'input':[" items "]}"

struct row {
    const char *format, *request; /* with ' for " */
};

static bool reaches(const struct row *row) {
    char text[4096], what[MODEL_REACH_SIZE];
    snprintf(text, sizeof(text), "%s", row->request);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *root DEFER(json_decrefp) = json_loads(text, JSON_ALLOW_NUL, NULL);
    if (!root)
        fail_msg("not JSON: %s", text);
    if (!json_object_get(root, "model"))
        json_object_set_new(root, "model", json_string("some-model"));
    bool does = model_reaches_out(model_codec_named(row->format), root, what);
    assert_int_equal(does, what[0] != '\0');
    return does;
}

static void what_clients_send_reaches_nobody(void **state) {
    static const struct row rows[] = {
        {G, "{'contents':[{'role':'user','parts':[{'text':'see https://a.example'},{'inlineData':"
            "{'mimeType':'image/png','data':'aGk='}},{'functionResponse':{'name':'f','response':"
            "{'url':'http://a.example'}}}]}],'systemInstruction':{'parts':[{'text':'x'}]},"
            "'tools':[{'functionDeclarations':[{'name':'f','parametersJsonSchema':{}}]}],"
            "'generationConfig':{'temperature':0}}"},
        {A, "{'messages':[{'role':'user','content':'see https://a.example'}],'max_tokens':9}"},
        {A, "{'system':[{'type':'text','text':'x','cache_control':{'type':'ephemeral'}}],"
            "'thinking':{'type':'enabled','budget_tokens':9},'mcp_servers':null,"
            "'tools':[{'name':'f','input_schema':{'$schema':'http://json-schema.org/draft-07/"
            "schema#','$ref':'#/$defs/a'}},{'type':'custom','name':'g','input_schema':{}},"
            "{'type':'bash_20250124','name':'bash'}],'tool_choice':{'type':'auto'}}"},
        {A,
         IN_A("{'type':'image','source':{'type':'base64','media_type':'image/png','data':'aGk='}}"
              ",{'type':'document','source':{'type':'text','media_type':'text/plain','data':"
              "'http://a.example'}},{'type':'tool_result','tool_use_id':'t','content':[{'type':"
              "'text','text':'x'}]}")},
        {A, "{'messages':[{'role':'assistant','content':[{'type':'thinking','thinking':'x',"
            "'signature':'y'},{'type':'tool_use','id':'t','name':'web_fetch','input':{'url':"
            "'http://a.example'}}]}]}"},
        {C, "{'messages':[{'role':'user','content':'hi'},{'role':'assistant','content':null,"
            "'tool_calls':[{'id':'a','type':'function','function':{'name':'f','arguments':'{}'}}]},"
            "{'role':'tool','tool_call_id':'a','content':'x'}],'stream':true,"
            "'stream_options':{'include_usage':true},'web_search_options':null,"
            "'tools':[{'type':'function','function':{'name':'f','parameters':{}}}]}"},
        {C, IN_C("{'type':'image_url','image_url':{'url':'data:image/png;base64,aGk=','detail':"
                 "'low'}},{'type':'input_audio','input_audio':{'data':'aGk=','format':'wav'}},"
                 "{'type':'file','file':{'file_data':'data:application/pdf;base64,aGk=',"
                 "'filename':'a.pdf'}}")},
        {R, "{'input':'hi','instructions':'x','store':false,'previous_response_id':null,"
            "'include':['reasoning.encrypted_content'],'tools':[{'type':'function','name':'f',"
            "'parameters':{}},{'type':'custom','name':'p'},{'type':'local_shell'}]}"},
        {R, IN_R("{'role':'user','content':[{'type':'input_text','text':'x'},{'type':'input_image',"
                 "'image_url':'data:image/png;base64,aGk='}]},{'type':'function_call','id':'i',"
                 "'call_id':'c','name':'f','arguments':'{}'},{'type':'function_call_output',"
                 "'call_id':'c','output':'x'},{'type':'reasoning','id':'r','summary':[],"
                 "'encrypted_content':'z'}")},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (reaches(&rows[i]))
            fail_msg("counts as reaching out: %s", rows[i].request);
}

static const struct row reaching[] = {
    /* tools of the provider, and other servers */
    {A, "{'mcp_servers':[{'type':'url','url':'https://a.example','name':'a'}]}"},
    {A, "{'mcp_servers':[]}"},
    {A, "{'tools':[{'type':'web_fetch_20250910','name':'web_fetch'}]}"},
    {A, "{'tools':[{'type':'web_search_20250305','name':'web_search'}]}"},
    {A, "{'tools':[{'name':'f','input_schema':{}},{'type':'code_execution_20250825'}]}"},
    {A, "{'tools':[{'type':'mcp_toolset','mcp_server_name':'a'}]}"},
    {A, "{'tools':[{'name':'f','input_schema':{'$ref':'http://a.example/s.json'}}]}"},
    {A, "{'tools':[{'name':'f','input_schema':{'items':[{'$schema':'http://a.example'}]}}]}"},
    {A, "{'tools':[{'name':'f','input_schema':{'$dynamicRef':7}}]}"},
    {A, "{'container':{'skills':[]}}"},
    {G, "{'tools':[{'googleSearch':{}}]}"},
    {G, "{'tools':[{'functionDeclarations':[]},{'urlContext':{}}]}"},
    {G, "{'tools':[{'codeExecution':{}}]}"},
    {G, "{'tools':[{'functionDeclarations':[{'parameters':{'$ref':'http://a.example/s.json'}}]}]}"},
    {G, "{'contents':[{'parts':[{'fileData':{'fileUri':'https://a.example'}}]}]}"},
    {G, "{'contents':[{'parts':[{'inlineData':{'data':'https://a.example'}}]}]}"},
    {G, "{'cachedContent':'cachedContents/a'}"},
    {C, "{'web_search_options':{}}"},
    {C, "{'plugins':[{'id':'web'}]}"},
    {C, "{'tools':[{'type':'web_search'}]}"},
    {C, "{'tools':[{'type':'mcp','server_url':'https://a.example'}]}"},
    {C, "{'functions':[{'name':'f','parameters':{'a':{'$ref':'//a.example'}}}]}"},
    {R, "{'tools':[{'type':'web_search_preview'}]}"},
    {R, "{'tools':[{'type':'mcp','server_label':'a','server_url':'https://a.example'}]}"},
    {R, "{'tools':[{'type':'code_interpreter','container':{'type':'auto'}}]}"},
    {R, "{'tools':[{'type':'file_search','vector_store_ids':['v']}]}"},
    {R, "{'text':{'format':{'type':'json_schema','schema':{'$ref':'a.json'}}}}"},
    /* addresses */
    {A, IN_A("{'type':'image','source':{'type':'url','url':'https://a.example/i.png'}}")},
    {A, IN_A("{'type':'document','source':{'type':'url','url':'https://a.example/d.pdf'}}")},
    {A, IN_A("{'type':'document','source':{'type':'content','content':[{'type':'image','source':"
             "{'type':'url','url':'https://a.example'}}]}}")},
    {A, IN_A("{'type':'tool_result','tool_use_id':'t','content':[{'type':'image','source':{'type':"
             "'url','url':'https://a.example'}}]}")},
    {A, IN_A("{'type':'image','source':{'type':'base64','media_type':'image/png','data':"
             "'https://a.example'}}")},
    {A, IN_A("{'type':'image','source':{'type':'file','file_id':'f'}}")},
    {A, "{'system':[{'type':'image','source':{'type':'url','url':'https://a.example'}}]}"},
    {C, IN_C("{'type':'image_url','image_url':{'url':'https://a.example/i.png'}}")},
    {C, IN_C("{'type':'image_url','image_url':{'url':'FILE:///etc/passwd'}}")},
    {C, IN_C("{'type':'image_url','image_url':'https://a.example/i.png'}")},
    {C, IN_C("{'type':'video_url','video_url':{'url':'https://a.example'}}")},
    {C, IN_C("{'type':'input_audio','input_audio':{'data':'https://a.example','format':'wav'}}")},
    {C, IN_C("{'type':'file','file':{'file_id':'f'}}")},
    {R, IN_R("{'role':'user','content':[{'type':'input_image','image_url':'http://a.example'}]}")},
    {R, IN_R("{'role':'user','content':[{'type':'input_file','file_url':'http://a.example'}]}")},
    {R, IN_R("{'type':'function_call_output','call_id':'c','output':[{'type':'input_image',"
             "'image_url':'http://a.example'}]}")},
    /* what the provider keeps, perhaps of another machine */
    {R, "{'previous_response_id':'r'}"},
    {R, "{'conversation':'c'}"},
    {R, "{'prompt':{'id':'p'}}"},
    {R, IN_R("{'type':'item_reference','id':'i'}")},
    {R, IN_R("{'id':'i'}")},
    {R, IN_R("{'type':null,'id':'i'}")},
    /* what goes on with a call of the provider's own tool */
    {A, "{'messages':[{'role':'assistant','content':[{'type':'server_tool_use','id':'s','name':"
        "'web_fetch','input':{}}]}]}"},
    /* what could be read in two ways, or by nobody */
    {A, "{'Tools':[]}"},
    {A, "{'messages':'x'}"},
    {A, "{'messages':['x']}"},
    {A, IN_A("{'type':'text\\u0000','text':'x'}")},
    {A, IN_A("{'type':7,'text':'x'}")},
    {C, "{'tools':[{'function':{'name':'f'}}]}"},
    /* models that search by themselves */
    {C, "{'model':'gpt-4o-search-preview'}"},
    {C, "{'model':'some/model:ONLINE'}"},
    {C, "{'model':7}"},
};

static void everything_else_does(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(reaching) / sizeof(*reaching); i++)
        if (!reaches(&reaching[i]))
            fail_msg("passes: %s %s", reaching[i].format, reaching[i].request);
}

/* No format lets a word pass that only another one has. */
static void an_unknown_member_does_in_every_format(void **state) {
    static const char *const formats[] = {A, C, R, G};
    (void)state;
    for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
        assert_true(reaches(&(struct row){formats[i], "{'word_of_tomorrow':1}"}));
        assert_false(reaches(&(struct row){formats[i], "{'word_of_tomorrow':null}"}));
    }
}

UNIT_MAIN(cmocka_unit_test(what_clients_send_reaches_nobody),
          cmocka_unit_test(everything_else_does),
          cmocka_unit_test(an_unknown_member_does_in_every_format))
